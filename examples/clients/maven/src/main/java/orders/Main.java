package orders;

import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.JMSSecurityRuntimeException;
import java.net.URI;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.exceptions.JmsConnectionFailedException;
import org.apache.qpid.jms.provider.exceptions.ProviderIOException;

/** The commands: each logs in as the user of the URL, does one thing, and ends. */
public final class Main {
    private static final String USAGE = """
            usage: COMMAND amqp://USER:PASSWORD@HOST:PORT ARGUMENTS
              publish URL HOW_MANY [KEY]    durable messages to the exchange "orders"
              consume URL HOW_MANY          from the subscription "billing", which a resource declares
              share URL NAME HOW_MANY       by two receivers, from a subscription that they make
              unsubscribe URL NAME          ends that subscription, with what it holds, if nobody else consumes""";

    private Main() {}

    public static void main(String[] arguments) {
        if (arguments.length < 3) {
            System.err.println(USAGE);
            System.exit(2);
        }
        try (JMSContext context = connect(URI.create(arguments[1]))) {
            switch (arguments[0]) {
                case "publish" -> {
                    String key = arguments.length > 3 ? arguments[3] : null;
                    Producer.publish(context, Integer.parseInt(arguments[2]), key);
                }
                case "consume" -> Consumer.consume(context, Integer.parseInt(arguments[2]));
                case "share" -> Consumer.share(context, arguments[2], Integer.parseInt(arguments[3]));
                case "unsubscribe" -> Consumer.unsubscribe(context, arguments[2]);
                default -> throw new IllegalArgumentException("there is no command " + arguments[0]);
            }
        } catch (JMSRuntimeException | JMSException problem) { // a wrong password, for one
            System.out.println(whatHappened(problem) + ": " + problem.getMessage());
            System.exit(1);
        } catch (IllegalArgumentException wrong) { // a NumberFormatException is one
            System.err.println(wrong.getMessage() + "\n" + USAGE);
            System.exit(2);
        }
    }

    /** Tells a broker that refuses, where trying again does not help, from one that is not there or went away. */
    private static String whatHappened(Throwable problem) {
        if (problem instanceof JMSSecurityRuntimeException) { // for Qpid JMS a connection is lost by it, too
            return "refused";
        }
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            if (cause instanceof ProviderIOException || cause instanceof JmsConnectionFailedException) {
                return "lost the broker";
            }
        }
        return "refused";
    }

    /** Logs in: by SCRAM if the broker offers it, so that the password does not leave this machine. */
    private static JMSContext connect(URI url) {
        if (url.getUserInfo() == null || !url.getUserInfo().contains(":")) {
            throw new IllegalArgumentException("the URL has no USER:PASSWORD@");
        }
        String[] login = url.getUserInfo().split(":", 2);
        String address = url.getScheme() + "://" + url.getHost() + ":" + url.getPort();
        // Few messages ahead, so that no consumer keeps them from the others.
        JmsConnectionFactory factory = new JmsConnectionFactory(login[0], login[1], address + "?jms.prefetchPolicy.all=2");
        return factory.createContext(JMSContext.CLIENT_ACKNOWLEDGE);
    }
}
