"""Tasks that are refused, in whatever process they are carried out."""

from dataclasses import dataclass

from noshadow.errors import InputError, named_in_errors, refuse


@named_in_errors
def refusing(x):
    refuse("x", "be nothing", x)


@dataclass(frozen=True)
class NamingTask:
    number: int

    @property
    def wanted(self):
        return (self.number,)


class NamingJob:
    def carried_out(self, task):
        try:
            refusing(3)
        except InputError as error:
            return str(error)
