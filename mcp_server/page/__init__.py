"""The page: the memory in a browser, on this machine only.

    door       access: one-time codes, cookies, the checks of Host and Origin, security headers
    site       the ASGI application: routes and errors
    answer     one request: its form, the templates and their filters, the response
    now, knows, find, days, topics, state     one screen each: a module here and a template of the same name
    passages   reads the text of a passage from its path and lines
    view       the HTML that MCP clients embed (MCP Apps)

A screen calls functions of the other packages and renders their results.
"""
