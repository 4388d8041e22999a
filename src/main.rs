//! The only place that exits. A worker is dispatched before anything else, so that no thread and no
//! runtime exists before it confines itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == "worker") {
        let served = loadline::worker::child::serve(&Default::default());
        return if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    ExitCode::from(loadline::cli::main())
}
