package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

const exchange = "orders"

// publish sends durable messages. Send returns when the broker has accepted one, which is when it is on its disk.
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
		if err := sender.Send(ctx, message, nil); err != nil {
			return err
		}
	}
	fmt.Println(count, "accepted")
	return nil
}
