"""The one document that the trace viewer reads."""
