package orders;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import org.apache.camel.component.amqp.AMQPComponent;
import org.apache.camel.main.Main;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.jms.connection.CachingConnectionFactory;

/** Takes orders from the subscription "billing" until SIGTERM; with `publish HOW_MANY` it publishes orders instead, and ends. */
public final class Orders {
    private Orders() {}

    public static void main(String[] arguments) throws Exception {
        Main main = new Main();
        try {
            main.bind("amqp", component());
        } catch (JMSException refused) { // a wrong password, for one
            System.out.println("refused: " + refused.getMessage());
            System.exit(1);
        }
        try {
            if (arguments.length == 2 && arguments[0].equals("publish")) {
                main.start();
                Publisher.publish(main.getCamelContext().createProducerTemplate(), Integer.parseInt(arguments[1]));
                main.stop();
            } else {
                main.configure().addRoutesBuilder(new Billing());
                main.run();
                System.out.println("stopped");
            }
        } catch (Exception problem) { // the connection has threads of its own, which would keep the program alive
            problem.printStackTrace();
            System.exit(1);
        }
        System.exit(main.getExitCode());
    }

    /**
     * One connection for all routes, without a ClientID, so that all pods share the subscription. It logs in at once: a wrong password
     * ends the program and does not become a line of the log every five seconds.
     */
    private static AMQPComponent component() throws JMSException {
        // One broker, tried again until it answers: an attempt takes two seconds at most, and the pause between two one second.
        // After 20 seconds without a sign of life the connection is made anew.
        String url = "failover:(" + variable("PENSTOCK_URL") + "?transport.connectTimeout=2000&amqp.idleTimeout=20000)"
                + "?failover.maxReconnectAttempts=-1&failover.maxReconnectDelay=1000&jms.prefetchPolicy.all=10";
        JmsConnectionFactory broker =
                new JmsConnectionFactory(variable("PENSTOCK_USER"), variable("PENSTOCK_PASSWORD"), url);
        try (Connection login = broker.createConnection()) {
            login.start(); // waits until the broker is there, and throws if it refuses the login
        }
        CachingConnectionFactory connections = new CachingConnectionFactory(broker);
        connections.setCacheConsumers(false); // a route that stops leaves its subscription
        return new AMQPComponent(connections);
    }

    private static String variable(String name) {
        String value = System.getenv(name);
        if (value == null) {
            System.out.println("set " + name + ": README.md says to what");
            System.exit(2);
        }
        return value;
    }
}
