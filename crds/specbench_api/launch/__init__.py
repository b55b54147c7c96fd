"""How each engine is started: one module per engine, and the matrix of supported drafting methods.

Pure. The operator renders a LaunchSpec into a pod, `specbench run` into a process; engine flags are defined only
here. To add an engine: write a module with a Launcher, add it to `registry.LAUNCHERS` and its methods to
`supported_methods`, and add a dialect of the same kind to the client.
"""
