"""Why a gradient is what it is."""
