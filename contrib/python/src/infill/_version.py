"""The package's version. It is that of the infill which it belongs to."""

__version__ = "0.1.0"
