"""What is in a session: kept by whom, held beside a module's registries."""
