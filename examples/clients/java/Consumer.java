// Consumes from the shared durable subscription "billing" of the exchange "orders". Any number may run at once, no ClientID.
// Needs org.apache.qpid:qpid-jms-client:2.10.0 and what it depends on, on the class path:
//   java -cp 'lib/*' Consumer.java 'failover:(amqp://127.0.0.1:5672)?jms.prefetchPolicy.all=100'

import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Message;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Consumer {
    public static void main(String[] arguments) {
        ConnectionFactory factory = new JmsConnectionFactory("guest", "guest", arguments[0]);
        try (JMSContext context = factory.createContext(JMSContext.CLIENT_ACKNOWLEDGE)) {
            JMSConsumer consumer = context.createSharedDurableConsumer(context.createTopic("orders"), "billing");
            Message message;
            while ((message = consumer.receive()) != null) { // null: the connection was closed, and is not made again
                boolean again = message.getJMSRedelivered(); // true: it may have been handled before; look before you act
                System.out.println(message.getBody(String.class) + (again ? " (again)" : ""));
                message.acknowledge(); // only now is it gone from the subscription
            }
            System.out.println("the connection is closed");
        } catch (JMSRuntimeException | JMSException problem) { // a wrong password, for one
            System.out.println("failed: " + problem.getMessage());
        }
        System.exit(1); // it ends only if something is wrong
    }
}
