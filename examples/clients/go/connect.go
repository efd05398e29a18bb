package main

import (
	"context"
	"errors"
	"net"
	"net/url"

	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"
)

// connect takes amqp://USER:PASSWORD@HOST:PORT, amqps:// (TLS), ws:// or wss:// (AMQP over WebSocket). It logs in by PLAIN, which a
// broker takes over TLS.
func connect(ctx context.Context, address string) (*amqp.Conn, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if parsed.Scheme == "ws" || parsed.Scheme == "wss" {
		return overWebSocket(ctx, parsed)
	}
	return amqp.Dial(ctx, address, nil)
}

// overWebSocket gives go-amqp a connection whose bytes travel in binary WebSocket messages.
func overWebSocket(ctx context.Context, address *url.URL) (*amqp.Conn, error) {
	password, _ := address.User.Password()
	options := &amqp.ConnOptions{HostName: address.Hostname(), SASLType: amqp.SASLTypePlain(address.User.Username(), password)}
	plain := *address
	plain.User = nil // the login is AMQP's, not HTTP's
	socket, _, err := websocket.Dial(ctx, plain.String(), &websocket.DialOptions{Subprotocols: []string{"amqp"}})
	if err != nil {
		return nil, err
	}
	socket.SetReadLimit(-1) // AMQP has its own: the frame size
	return amqp.NewConn(ctx, websocket.NetConn(ctx, socket, websocket.MessageBinary), options)
}

// whatHappened tells a broker that refuses, where trying again does not help, from one that is not there or went away.
func whatHappened(err error) string {
	var network net.Error
	var connection *amqp.ConnError
	isLost := errors.As(err, &network)
	if errors.As(err, &connection) { // a broker that stops closes its connections as "forced"
		isLost = connection.RemoteErr == nil || connection.RemoteErr.Condition == amqp.ErrCondConnectionForced
	}
	if isLost {
		return "lost the broker"
	}
	return "refused"
}
