package orders;

import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSProducer;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Topic;

/** Publishes to the exchange "orders". */
final class Producer {
    private Producer() {}

    /** Durable messages, the default of JMS: when send returns, the message is on the broker's disk. */
    static void publish(JMSContext context, int count, String key) throws JMSException {
        // A key, such as eu.fr.paris, is a part of the address: "orders/eu.fr.paris".
        Topic orders = context.createTopic(key == null ? "orders" : "orders/" + key);
        JMSProducer producer = context.createProducer();
        for (int number = 0; number < count; number++) {
            try {
                producer.send(orders, "order " + number);
            } catch (JMSRuntimeException problem) { // the broker went away, or did not take it
                String accepted = " (" + number + " of " + count + " are accepted; the next one may be there, too)";
                throw (JMSException) new JMSException(problem.getMessage() + accepted).initCause(problem);
            }
        }
        System.out.println(count + " accepted");
    }
}
