package orders;

import org.apache.camel.ProducerTemplate;

/** Publishes durable messages: when the template returns, the message is on the broker's disk. */
final class Publisher {
    private Publisher() {}

    static void publish(ProducerTemplate template, int count) {
        for (int number = 0; number < count; number++) {
            template.sendBody("amqp:topic:orders/eu.fr", "order " + number); // "eu.fr" is the routing key
        }
        System.out.println(count + " accepted");
    }
}
