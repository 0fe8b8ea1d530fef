"""From torch to reports: the only package that imports torch. What it leaves is plain data."""
