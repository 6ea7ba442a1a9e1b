"""The page in the browser: look, correct, learn again; over the same actions as the command line.

``guard.py`` lets requests in, ``routes.py`` turns addresses into questions to a session of
`bagwise.actions.looking`, ``server.py`` runs it all. The page itself lies in ``static/``: plain modules, one
per kind of view.
"""
