"""Build, probe and test the images. `platforms.toml` is the one source of what an image is."""
