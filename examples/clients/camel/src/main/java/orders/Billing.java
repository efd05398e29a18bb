package orders;

import org.apache.camel.builder.RouteBuilder;

/** Takes orders from "billing", by two threads here, in as many pods as you like. */
final class Billing extends RouteBuilder {
    /**
     * A message is accepted when the route has ended. If the route throws, the transaction of the session is rolled back: the delivery
     * has failed, the broker counts it, and after maxDeliveries of the subscription the message goes to the dead letters.
     */
    @Override
    public void configure() {
        errorHandler(noErrorHandler()); // the broker repeats, not Camel: so the attempts are counted over all pods, and over restarts
        from("amqp:topic:orders?subscriptionShared=true&subscriptionDurable=true&durableSubscriptionName=billing"
                        + "&transacted=true&lazyCreateTransactionManager=false&concurrentConsumers=2")
                .routeId("billing")
                // A message may come twice: look before you act. This is the place for a look into your database.
                .process(exchange -> bill(
                        exchange.getMessage().getBody(String.class),
                        exchange.getMessage().getHeader("JMSRedelivered", false, Boolean.class)));
    }

    private static void bill(String order, boolean again) {
        if (!order.startsWith("order ") || order.equals("order unpaid")) {
            throw new IllegalArgumentException("it cannot be billed: " + order);
        }
        System.out.println("billed " + order + (again ? " (again)" : ""));
    }
}
