"""Whether a published table of results agrees with itself: arithmetic alone, nothing is measured.

    reading      CSV, Markdown or JSON text → Document of tables; columns by their usual names
    columns      which quantities there are, and how papers and posts call them
    numbers      a number as it was printed, with what its rounding hides
    document     rows, their settings, the baseline of a row, and sweeps: rows that differ in one setting
    rules        one file a law: what must hold between columns, or between rows
    judge        every rule over a document → AuditReport
    of_run       a run of ours as such a document

A rule speaks where numbers contradict each other by more than their printed digits and its own tolerance allow, and
shows the sum. It never says which of the numbers is wrong: that cannot be told from the table.
"""
