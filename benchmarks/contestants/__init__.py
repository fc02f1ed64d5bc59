"""One file per contestant: ``first_result(problem, num_steps)`` and ``run(problem, num_steps)``, seconds per step."""
