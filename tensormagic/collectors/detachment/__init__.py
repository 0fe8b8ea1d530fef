"""Where the gradient's way ends although it could have gone on."""
