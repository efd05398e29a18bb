package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

const exchange = "orders"

// publish sends durable messages, each when the broker has accepted the one before, which is when that one is on its disk.
func publish(ctx context.Context, session *amqp.Session, count int, key string) error {
	// The kind is named: where brokers make what they don't know, a name alone would become a queue.
	sender, err := session.NewSender(ctx, exchange, &amqp.SenderOptions{TargetCapabilities: []string{"topic"}})
	if err != nil {
		return err
	}
	for i := range count {
		message := &amqp.Message{
			Header:     &amqp.MessageHeader{Durable: true},
			Properties: &amqp.MessageProperties{Subject: &key}, // the routing key, such as eu.fr.paris
			Value:      fmt.Sprintf("order %d", i),
		}
		if err := send(ctx, sender, message); err != nil {
			return fmt.Errorf("%w (%d of %d are accepted; the next one may be there, too)", err, i, count)
		}
	}
	fmt.Println(count, "accepted")
	return nil
}

// send returns nil if the broker has accepted the message. Send of go-amqp returns nil also if it was released or modified, which means
// that the broker does not have it.
func send(ctx context.Context, sender *amqp.Sender, message *amqp.Message) error {
	receipt, err := sender.SendWithReceipt(ctx, message, nil)
	if err != nil {
		return err
	}
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	switch state := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateRejected:
		if state.Error != nil {
			return state.Error
		}
	}
	return fmt.Errorf("the broker did not take the message: %T", state)
}
