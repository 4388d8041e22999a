//! The few raw system calls that rustix lacks.
