package orders;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** Consumes from the subscription "billing" until SIGTERM; with `publish HOW_MANY` it publishes orders instead, and ends. */
@SpringBootApplication
public class Orders {
    public static void main(String[] arguments) {
        boolean publishes = arguments.length == 2 && arguments[0].equals("publish");
        SpringApplication application = new SpringApplication(Orders.class);
        application.setAdditionalProfiles(publishes ? "publish" : "consume");
        var context = application.run(arguments);
        if (publishes) {
            System.exit(SpringApplication.exit(context));
        }
    }
}
