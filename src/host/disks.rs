//! /proc/diskstats and the queue facts of block devices.
