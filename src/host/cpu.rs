//! /proc/stat, pressure stall information, cgroup CPU limits.
