// Publishes to the exchange "orders", and consumes from shared durable subscriptions of it, by go-amqp.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
)

const usage = `usage: go run . COMMAND URL ARGUMENTS
URL is amqp://USER:PASSWORD@HOST:PORT, or the same with amqps:, ws: or wss:
  publish URL HOW_MANY [KEY]    durable messages to the exchange "orders"
  consume URL [HOW_MANY]        from the subscription "billing", which a resource declares
  share URL NAME HOW_MANY       by two receivers, from a subscription that they make
  unsubscribe URL NAME          ends that subscription, with what it holds, if nobody else consumes`

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Println(whatHappened(err)+":", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command, url string, arguments []string) error {
	connection, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer connection.Close()
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	switch command {
	case "publish":
		key := ""
		if len(arguments) > 1 {
			key = arguments[1]
		}
		return publish(ctx, session, number(arguments, 0), key)
	case "consume":
		return consume(ctx, session, number(arguments, 0))
	case "share":
		return share(ctx, session, arguments[0], number(arguments, 1))
	case "unsubscribe":
		return unsubscribe(ctx, session, arguments[0])
	}
	return fmt.Errorf("unknown command %q", command)
}

// number is the argument at a position, or 0.
func number(arguments []string, position int) int {
	if len(arguments) <= position {
		return 0
	}
	value, err := strconv.Atoi(arguments[position])
	if err != nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	return value
}
