"""The page in the browser: look, correct, learn again; over the same actions as the command line."""
