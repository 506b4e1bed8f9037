"""What arithmetic GPU matrix instructions really do, measured bit for bit."""

__version__ = "0.1.0"
