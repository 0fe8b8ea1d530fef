"""What every renderer needs: markup, phrases, colours, small drawings."""
