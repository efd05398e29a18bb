//! Takes orders from the subscription "billing", in as many processes as you like.

use std::time::Duration;

use fe2o3_amqp::{
    Delivery, Receiver,
    link::{DispositionError, ReceiverAttachError, RecvError, receiver::CreditMode},
    types::{
        definitions::{AmqpError, Error},
        messaging::{Body, Modified, Source, TerminusDurability, TerminusExpiryPolicy},
        primitives::{Symbol, Value},
    },
};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

use crate::{
    Done,
    broker::{Broker, Trouble},
};

const PAUSE: Duration = Duration::from_secs(1);

/// Until SIGTERM or Ctrl-C. A broker that is not there is tried again, a login that is refused is not.
pub async fn consume(broker: &Broker) -> Done {
    let mut stop = Stop::new();
    loop {
        match take_orders(broker, &mut stop).await {
            Err(Trouble::Lost(why)) => println!("lost the broker, trying again: {why}"),
            ended => return ended,
        }
        select! {
            () = sleep(PAUSE) => (),
            () = stop.wanted() => return Ok(()),
        }
    }
}

/// On one connection. A message that has no outcome when it ends goes to another consumer.
async fn take_orders(broker: &Broker, stop: &mut Stop) -> Done {
    let (mut connection, mut session) = broker.connect().await?;
    let mut receiver = Receiver::builder()
        // The subscription's name is what stands before "|"; what follows only makes link names differ.
        .name("billing|1")
        .source(
            Source::builder()
                .address("orders")
                .durable(TerminusDurability::UnsettledState)
                .expiry_policy(TerminusExpiryPolicy::Never)
                .capabilities(["topic", "shared", "global"].map(Symbol::from).to_vec())
                .build(),
        )
        .credit_mode(CreditMode::Auto(10)) // few messages ahead, so that no consumer keeps them from the others
        .attach(&mut session)
        .await
        .map_err(|error| match error {
            ReceiverAttachError::SessionStopped(_) => Trouble::lost(error),
            _ => Trouble::refused(error),
        })?;
    println!("ready");
    loop {
        let delivery = select! {
            received = receiver.recv::<Body<Value>>() => received,
            () = stop.wanted() => break,
        };
        let delivery = match delivery {
            Ok(delivery) => delivery,
            Err(RecvError::MessageDecode(unreadable)) => {
                // On another connection it would come again, and be as unreadable.
                println!("rejected a message that can't be read: {}", unreadable.source);
                receiver.reject(unreadable.info, no_order()).await.map_err(Trouble::lost)?;
                continue;
            }
            Err(error) => return Err(Trouble::lost(error)),
        };
        settle(&receiver, &delivery).await.map_err(Trouble::lost)?;
    }
    // Not close(): closing would end a subscription that no resource declares.
    receiver.detach().await.map_err(|(_, error)| Trouble::lost(error))?;
    session.end().await.map_err(Trouble::lost)?;
    connection.close().await.map_err(Trouble::lost)?;
    println!("stopped");
    Ok(())
}

/// The outcome comes after the work.
async fn settle(receiver: &Receiver, delivery: &Delivery<Body<Value>>) -> Result<(), DispositionError> {
    let Some(order) = order_of(delivery.body()) else {
        println!("rejected {:?}", delivery.body());
        return receiver.reject(delivery, no_order()).await; // to the dead letters, without another attempt
    };
    let header = delivery.message().header.as_ref();
    let again = header.is_some_and(|header| header.delivery_count > 0); // handled before? Look before you act.
    match bill(order, again) {
        Ok(()) => receiver.accept(delivery).await,
        Err(why) => {
            println!("failed {order}: {why}");
            // A failed delivery: the broker counts it, up to maxDeliveries.
            let failed = Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
            receiver.modify(delivery, failed).await
        }
    }
}

fn no_order() -> Error {
    Error::new(AmqpError::DecodeError, Some("it is not an order".into()), None)
}

fn order_of(body: &Body<Value>) -> Option<&str> {
    match body {
        Body::Value(value) => match &value.0 {
            Value::String(text) if text.starts_with("order ") => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn bill(order: &str, again: bool) -> Result<(), &'static str> {
    if order == "order unpaid" {
        return Err("the bank does not answer");
    }
    println!("billed {order}{}", if again { " (again)" } else { "" });
    Ok(())
}

/// SIGTERM, as Kubernetes sends it before it ends a pod, or Ctrl-C.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> Stop {
        let listen = |kind| signal(kind).expect("signals can be listened to");
        Stop { terminate: listen(SignalKind::terminate()), interrupt: listen(SignalKind::interrupt()) }
    }

    async fn wanted(&mut self) {
        select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }
}
