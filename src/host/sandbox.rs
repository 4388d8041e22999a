//! Confinement of workers: no_new_privs, priority, Landlock, seccomp.
