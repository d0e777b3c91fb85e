"""Measure what can be said of failures in which no call failed: `python -m benchmarks silent --data DIR`.

The sessions are of support tasks whose end state a program checked; each ended well or not, and of those that did not
it is known which assertions about the state failed. Calls nearly never fail there.

| room | what it does |
| --- | --- |
| `cases` | reads sessions with their reward and their failed assertions |
| `contrasts` | mines rules from sessions that ended well against those that did not |
| `rivals` | the nearest success, the usual call, what fleetlore says today, every tool that changes something |
| `decisive` | which call decided a failure, and whether a line names what failed before it |
| `judged` | what the judges abstain from, with the rewards and without |
| `measure` | holds out tasks and domains, counts, and shuffles the rewards |
"""
