"""How the embedded demo model is made: data, training, evaluation, export.

Run as ``python -m training {vae,dit,export,evaluate,all}``. Nothing here is part of the
distribution; what it writes (``runtime/ditport/demo/model``) is.
"""
