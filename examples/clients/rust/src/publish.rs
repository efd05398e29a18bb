//! Publishes durable messages: when send returns, the message is on the broker's disk.

use fe2o3_amqp::{
    Sender,
    types::{
        messaging::{Header, Message, Outcome, Properties, Target},
        primitives::Symbol,
    },
};

use crate::{
    Done,
    broker::{Broker, Trouble},
};

pub async fn publish(broker: &Broker, count: u32) -> Done {
    let (mut connection, mut session) = broker.connect().await?;
    // The kind is named: where brokers make what they don't know, a name alone would become a queue.
    let orders = Target::builder().address("orders").capabilities(vec![Symbol::from("topic")]).build();
    let mut sender = Sender::builder().name("orders").target(orders).attach(&mut session).await.map_err(Trouble::refused)?;
    for number in 0..count {
        let order = Message::builder()
            .header(Header { durable: true, ..Header::default() })
            .properties(Properties::builder().subject("eu.fr").build()) // the routing key
            .value(format!("order {number}"))
            .build();
        let outcome = sender.send(order).await.map_err(|error| {
            Trouble::lost(format!("{error} ({number} of {count} are accepted; the next one may be there, too)"))
        })?;
        if !matches!(outcome, Outcome::Accepted(_)) {
            return Err(Trouble::Refused(format!("{outcome:?} ({number} of {count} are accepted)")));
        }
    }
    println!("{count} accepted");
    sender.close().await.map_err(Trouble::lost)?;
    session.end().await.map_err(Trouble::lost)?;
    connection.close().await.map_err(Trouble::lost)
}
