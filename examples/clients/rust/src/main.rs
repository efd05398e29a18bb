//! Publishes to the exchange "orders", and takes orders from its shared durable subscription "billing", by fe2o3-amqp.

mod billing;
mod broker;
mod publish;

use std::{env, process::ExitCode};

use broker::{Broker, Trouble};

const USAGE: &str = "usage: orders consume            from the subscription \"billing\", until SIGTERM or Ctrl-C
       orders publish HOW_MANY   durable messages to the exchange \"orders\"
PENSTOCK_URL is amqp://HOST:PORT; PENSTOCK_USER and PENSTOCK_PASSWORD log in.";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(broker) = Broker::from_environment() else {
        return usage();
    };
    let ended = match (words.as_slice(), words.get(1).and_then(|count| count.parse().ok())) {
        (["consume"], _) => billing::consume(&broker).await,
        (["publish", _], Some(count)) => publish::publish(&broker, count).await,
        _ => return usage(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            println!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// What a command returns.
type Done = Result<(), Trouble>;
