"""The page: the memory in a browser, on this machine only.

    door       who may come in: one-time codes, cookies, the checks of Host and Origin, security headers
    site       the ASGI application: routes, templates, the answer to an error
    now, knows, find, days, topics, state     one screen each: a module here and a template of the same name
    passages   the words of a passage that a log or a receipt names by its place

A screen calls the verbs of the other rooms and renders what they return. It computes nothing of its own.
"""
