"""Serve a GGUF file by llama.cpp, out of the wheel xllamacpp: `python llama_server.py FILE SLOTS TOKENS PORT...`.

It runs in an environment that has the wheel and no module of this project. A server a port, each with one thread: two
threads of one server wait for each other, which on a machine that others use too makes them slower than one. Ends with
its standard input, so it does not outlive who started it.
"""

import sys

import xllamacpp  # type: ignore[import-not-found, unused-ignore]

file, (slots, tokens, *ports) = sys.argv[1], map(int, sys.argv[2:])
servers = []
for port in ports:
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_parallel = slots
    params.n_ctx = tokens * slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.hostnames, params.port = ["127.0.0.1"], port
    servers.append(xllamacpp.Server(params))
sys.stdin.read()
