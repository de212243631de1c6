"""What the meters have in common: they see every operation, and are not compiled."""

from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):
    """A context that torch shows every operation of this thread and of its backward passes."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip the compiler torch would first import it, which takes seconds."""
        return False
