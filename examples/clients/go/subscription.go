package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

const receivers = 2

// subscribe attaches to a shared durable subscription. Its name is what stands before "|"; the suffix only makes link names differ.
//
// go-amqp detaches with closed=true whenever a receiver is closed, and that ends a subscription that no resource declares. Who wants it
// to go on collecting closes the connection (or the session) and not the receiver.
func subscribe(ctx context.Context, session *amqp.Session, name, suffix string, credit int32) (*amqp.Receiver, error) {
	return session.NewReceiver(ctx, exchange, &amqp.ReceiverOptions{
		Name:               name + "|" + suffix,
		Credit:             credit,
		SourceDurability:   amqp.DurabilityUnsettledState,
		SourceExpiryPolicy: amqp.ExpiryPolicyNever,
		SourceCapabilities: []string{"topic", "shared", "global"},
	})
}

// consume takes from "billing"; count 0 means without end.
func consume(ctx context.Context, session *amqp.Session, count int) error {
	receiver, err := subscribe(ctx, session, "billing", "1", 10)
	if err != nil {
		return err
	}
	for taken := 0; count == 0 || taken < count; taken++ {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		again := ""
		if message.Header != nil && message.Header.DeliveryCount > 0 {
			again = " (again)"
		}
		fmt.Printf("%v%s\n", message.Value, again)
		if err := receiver.AcceptMessage(ctx, message); err != nil { // after it was handled
			return err
		}
	}
	return nil
}

// share consumes by two receivers. They could as well be in two processes.
func share(ctx context.Context, session *amqp.Session, name string, count int) error {
	permits, accepted := make(chan struct{}, count), make(chan error)
	for range count {
		permits <- struct{}{}
	}
	close(permits)
	for number := range receivers {
		suffix := fmt.Sprint(number + 1)
		receiver, err := subscribe(ctx, session, name, suffix, 1)
		if err != nil {
			return err
		}
		go take(ctx, receiver, suffix, permits, accepted)
	}
	fmt.Println("ready")
	for range count {
		if err := <-accepted; err != nil {
			return err
		}
	}
	return nil
}

// take prints and accepts a message for each permit. One that comes when there are none left gets no outcome: it goes to another consumer.
func take(ctx context.Context, receiver *amqp.Receiver, suffix string, permits <-chan struct{}, accepted chan<- error) {
	for {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			accepted <- err
			return
		}
		if _, open := <-permits; !open {
			return
		}
		fmt.Println(suffix, message.Value)
		accepted <- receiver.AcceptMessage(ctx, message)
	}
}

// unsubscribe joins the subscription and closes its link, which ends it if nobody else consumes. go-amqp can't send the link without a
// source by which other clients look a subscription up, so one that is not there is made and ended; and it drops the broker's answer to
// a close, so a refusal (others consume, or a resource declares it) is not told.
func unsubscribe(ctx context.Context, session *amqp.Session, name string) error {
	receiver, err := subscribe(ctx, session, name, "unsubscribe", -1)
	if err != nil {
		return err
	}
	if err := receiver.Close(ctx); err != nil {
		return err
	}
	fmt.Println("closed")
	return nil
}
