"""What runs inside the build, by the base image's own Python: standard library only."""
