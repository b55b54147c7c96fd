"""How each engine is started: one file an engine behind one small protocol, and the table of what exists.

Pure. The operator renders a Launch into a pod, `specbench run` into a process; neither knows an engine's flags.
To add an engine: a file beside these with a Launcher, its row in `table.LAUNCHERS`, its cells in `support.CELLS`,
and a dialect of the same kind in the client.
"""
