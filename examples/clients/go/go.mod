module penstock.dev/examples/clients

go 1.25

require (
	github.com/Azure/go-amqp v1.7.0
	github.com/coder/websocket v1.8.15
)
