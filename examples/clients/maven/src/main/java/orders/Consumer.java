package orders;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.exceptions.JmsConnectionFailedException;

/** Consumes from shared durable subscriptions of the exchange "orders". There is no ClientID: all programs share them. */
final class Consumer {
    private Consumer() {}

    /** From "billing", which a resource declares; start it in as many processes as you like. */
    static void consume(JMSContext context, int count) throws JMSException {
        JMSConsumer consumer = context.createSharedDurableConsumer(context.createTopic("orders"), "billing");
        for (int left = count; left > 0; left--) {
            Message message = consumer.receive();
            if (message == null) { // only if the connection is closed
                throw new JmsConnectionFailedException();
            }
            boolean again = message.getJMSRedelivered(); // it may have been handled before; look before you act
            System.out.println(message.getBody(String.class) + (again ? " (again)" : ""));
            message.acknowledge(); // only now is it gone from the subscription
        }
    }

    /** By two receivers in sessions of their own, from a subscription that they make unless it is there. */
    static void share(JMSContext first, String subscription, int count) throws JMSException {
        LinkedBlockingQueue<Object> lines = new LinkedBlockingQueue<>();
        // A listener waits for ever on a connection that is lost: only the connection tells.
        first.setExceptionListener(lines::add);
        AtomicInteger wanted = new AtomicInteger(count);
        try (JMSContext second = first.createContext(JMSContext.CLIENT_ACKNOWLEDGE)) {
            receive(first, subscription, "1", wanted, lines);
            receive(second, subscription, "2", wanted, lines);
            System.out.println("ready");
            for (int left = count; left > 0; left--) {
                Object line = lines.take();
                if (line instanceof JMSException problem) {
                    throw problem;
                }
                System.out.println(line);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static void receive(
            JMSContext context, String subscription, String name, AtomicInteger wanted, LinkedBlockingQueue<Object> lines) {
        context.createSharedDurableConsumer(context.createTopic("orders"), subscription).setMessageListener(message -> {
            if (wanted.decrementAndGet() < 0) {
                return; // came while we were leaving; not acknowledged, it goes to another consumer
            }
            try {
                String body = message.getBody(String.class);
                message.acknowledge(); // before the last line is shown, since we leave then
                lines.add(name + " " + body);
            } catch (JMSException error) {
                lines.add(error);
            }
        });
    }

    /** Ends the subscription with what it holds. */
    static void unsubscribe(JMSContext context, String subscription) {
        context.unsubscribe(subscription);
        System.out.println("ended");
    }
}
