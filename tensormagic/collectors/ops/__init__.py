"""Level ``ops``: every ATen operation."""
