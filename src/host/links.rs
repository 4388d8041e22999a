//! /proc/net/dev, interface speed and class; TCP counters of /proc/net/snmp and netstat.
