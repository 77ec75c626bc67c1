"""The words that features look for, as they are matched: whole, in small letters. Knows nothing of features.

docs/features.md lists them too; a test compares.
"""

__all__ = ["MONEY", "MULTI_STEP", "PERCENT", "RATE", "TIME"]

PERCENT = frozenset({"percent", "percents", "percentage", "percentages", "pct"})

TIME = frozenset(
    {
        *("second", "seconds", "minute", "minutes", "hour", "hours", "hourly", "day", "days", "daily"),
        *("week", "weeks", "weekly", "weekend", "weekends", "month", "months", "monthly"),
        *("year", "years", "yearly", "decade", "decades", "century", "centuries", "annual", "annually"),
        *("morning", "mornings", "noon", "afternoon", "afternoons", "evening", "evenings"),
        *("night", "nights", "midnight", "today", "tomorrow", "yesterday", "am", "pm", "clock", "oclock"),
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "june", "july", "august", "september", "october"),
        *("november", "december", "age", "ago", "old", "older", "younger", "time", "times"),
    }
)

MONEY = frozenset(
    {
        *("dollar", "dollars", "cent", "cents", "euro", "euros", "pound", "pounds", "rupee", "rupees"),
        *("yen", "yuan", "usd", "eur", "gbp", "money", "cash", "coin", "coins", "dime", "dimes"),
        *("nickel", "nickels", "penny", "pennies", "price", "prices", "priced", "cost", "costs"),
        *("costing", "pay", "pays", "paid", "paying", "payment", "payments", "buy", "buys", "buying"),
        *("bought", "sell", "sells", "selling", "sold", "sale", "sales", "spend", "spends", "spending"),
        *("spent", "earn", "earns", "earned", "earning", "earnings", "salary", "salaries", "wage", "wages"),
        *("profit", "profits", "revenue", "income", "budget", "discount", "discounts", "fee", "fees"),
        *("tax", "taxes", "tip", "tips", "loan", "loans", "debt", "debts", "owe", "owes", "owed"),
        *("interest", "invest", "invests", "invested", "investment", "save", "saves", "saved", "savings"),
        *("worth", "cheap", "cheaper", "expensive"),
    }
)

RATE = frozenset(
    {
        *("per", "each", "every", "rate", "rates", "ratio", "ratios", "proportion", "proportional"),
        *("speed", "speeds", "velocity", "pace", "fast", "faster", "slow", "slower", "average", "averages"),
        *("mph", "kph", "kmh", "rpm", "frequency", "density", "flow", "flows"),
    }
)

MULTI_STEP = frozenset(
    {
        *("then", "after", "afterwards", "before", "next", "finally", "first", "later", "initially"),
        *("remaining", "remainder", "rest", "left", "leftover", "total", "altogether", "combined"),
        *("together", "both", "twice", "thrice", "half", "double", "doubled", "triple", "tripled"),
        *("more", "less", "fewer", "than", "if", "since", "until", "while", "also", "however"),
        *("therefore", "hence", "suppose", "given", "step", "steps", "followed", "additional"),
    }
)
