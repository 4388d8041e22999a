//! Floor 3: workloads on storage: patterns, engines, the ballast file, the driver.
