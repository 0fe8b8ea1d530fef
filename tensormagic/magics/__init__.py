"""The thin edge: the only package that knows IPython. A magic parses, calls the api, and shows."""
