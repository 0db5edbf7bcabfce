"""OpenAI's dialect, as servers of others speak it.

`request` has its dialects, `stream` reads a streamed answer, `sse` the events in it, `body` what is not
one, `errors` the forms in which servers report errors. `http` keeps the connections, `address` reads a server's URL.
"""
