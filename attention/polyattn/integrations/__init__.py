"""Routing the attention of other libraries' models through polyattn."""
