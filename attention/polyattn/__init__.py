"""polyattn: attention backends for diffusion transformers, chosen, counted and explained.

Importing this package imports neither torch nor diffusers; `tests/unit/polyattn/test_imports.py`
lists what must stay so.
"""
