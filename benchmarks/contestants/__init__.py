"""One file per contestant.

For :mod:`step`: ``first_result(problem, num_steps)`` and ``run(problem, num_steps)``, seconds per step. For
:mod:`peers`, in files called ``peer_*``: ``train(task, data, seed)``, a trained model and seconds per step.
"""
